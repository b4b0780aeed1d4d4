"""A valid TOML file of an experiment with one cell."""

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
