"""The judge as a reward: of an attempt, of its turns, or of a group's attempts against each other."""
