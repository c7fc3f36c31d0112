"""From a few labelled images to answers about others: the classifier, the weights it starts from, its doubts."""
