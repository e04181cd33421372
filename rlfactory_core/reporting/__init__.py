"""What a run leaves behind and says of itself: its folder, metrics, trajectories, report and progress events."""
