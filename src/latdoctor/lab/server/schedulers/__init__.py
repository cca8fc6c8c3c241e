"""Which requests are computed together, and when: plain objects without I/O or a clock of their own."""
