"""A file of one's own with one cell, in which nothing is wrong."""

GOOD = """
title = "mine"
[[cells]]
name = "one"
world.space = "Sphere(3)"
world.marginal = "Uniform()"
world.conditional = "VonMisesFisher(kappa=10)"
model.space = "sphere"
model.conditional = "vmf"
"""
