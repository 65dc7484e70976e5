"""`python -m farflung` is `farflung`."""

from farflung.cli.main import main

main()
