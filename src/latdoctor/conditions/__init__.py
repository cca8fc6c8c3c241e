"""The condition language of findings, preconditions and verification: syntax tree, parser, three-valued evaluation."""
