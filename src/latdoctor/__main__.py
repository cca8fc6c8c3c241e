"""`python -m latdoctor`."""

from latdoctor.cli.main import main

main()
