"""The command line: commands without logic."""
