"""The one kind of error a user is meant to see."""


class UserError(Exception):
    """Bad input or a bad request: the message says what was wrong and what to do about it."""
