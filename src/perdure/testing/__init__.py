"""Tools that put perdure, and what is built on it, to the test.

Production code never imports from here.
"""
