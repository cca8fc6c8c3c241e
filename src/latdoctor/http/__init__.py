"""HTTP client: `client` sends one bounded request and keeps secrets out of messages; `address` judges hosts."""
