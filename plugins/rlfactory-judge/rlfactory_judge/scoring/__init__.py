"""The judge as a reward: it scores an attempt, each of its turns, or compares the attempts of a group."""
