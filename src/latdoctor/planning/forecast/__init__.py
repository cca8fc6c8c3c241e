"""The request rate ten to fifteen minutes ahead, by the method that a backtest of its own history shows to be best."""
