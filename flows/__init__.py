"""Runs that put the stages together, and the heal command line.

Here: which stage follows which, what a command asks, checks and prints, what Prefect
deploys, and the services of `heal up`. Not here: how a stage is cached, arithmetic on
rows, formats of files, the words and plots of a report. Nothing imports this room but
tests and `bench/`.
"""
