"""Specifications of small experiments, as a user writes them in a TOML file."""


def toml_cell(name, space, conditional, model_space, model_conditional, *lines):
    """One cell: its world, a model that matches it, and further lines."""
    return "\n".join(
        [
            "[[cells]]",
            f'name = "{name}"',
            f'world.space = "{space}"',
            'world.marginal = "Uniform()"',
            f'world.conditional = "{conditional}"',
            f'model.space = "{model_space}"',
            f'model.conditional = "{model_conditional}"',
            *lines,
            "",
        ]
    )


def sphere_cell(name, *lines):
    return toml_cell(name, "Sphere(3)", "VonMisesFisher(kappa=10)", "sphere", "vmf", *lines)


GOOD = f'\ntitle = "mine"\n{sphere_cell("one")}'
