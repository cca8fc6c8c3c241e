"""HTTP: `client` sends bounded requests and masks secrets, `failure` says what failed, `address` checks hosts."""
