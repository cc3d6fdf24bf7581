"""What metadata nodes cost: how late they show a change, what one takes, how they begin."""
