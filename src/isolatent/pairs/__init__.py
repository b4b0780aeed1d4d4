"""How positives are made: sources of pairs of related observations."""

from isolatent.pairs.sources import ArrayPairs, PairSource, SeriesPairs, WorldPairs, release_pages

__all__ = ["ArrayPairs", "PairSource", "SeriesPairs", "WorldPairs", "release_pages"]
