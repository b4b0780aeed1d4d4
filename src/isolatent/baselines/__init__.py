"""What one would use instead: the observations as they are, or an encoder that is told the truth."""

from isolatent.baselines.supervised import SupervisedEncoder

__all__ = ["SupervisedEncoder"]
