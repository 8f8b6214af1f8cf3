"""Generators and checks of the repository."""
