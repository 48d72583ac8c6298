"""Random schedules of requesters and workers that pause, die and return: `python -m chaos.schedules --seed S --count
N`.

What decides is the real thing: the coalescer's own scripts, in a Lua interpreter of the server's version, behind its
own Python class; and the store's rules of precedence. Only what they stand on is simulated: the server's memory and
clock, the topics, the rows. Tests hold that ground against the real server and a real database, step by step.
"""
