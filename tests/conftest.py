"""For all tests."""

from hypothesis import settings

# how long an example takes says something of the machine, and nothing of the program
settings.register_profile("farflung", deadline=None)
settings.load_profile("farflung")
