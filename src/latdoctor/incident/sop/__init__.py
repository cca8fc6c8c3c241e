"""Standard operating procedures: their types, their files, and the clock of their stages."""
