"""Reviews on which Locations the authors of placements may place, and again when roles change."""
