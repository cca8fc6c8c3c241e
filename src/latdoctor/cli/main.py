"""The `latdoctor` command."""


def main() -> None:
    raise SystemExit(2)
