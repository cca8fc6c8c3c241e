"""Which of two settings is better: the same load on both in pairs, or two recorded populations."""
