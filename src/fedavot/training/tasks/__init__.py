"""Ready-made tasks, one model per file, and the exact optima of the linear ones.

`linear` has least squares, least absolute deviations and the hinge loss, `optima` their minima,
`softmax` multinomial logistic regression, `mlp` a network with one hidden layer, and `cnn` a small
convolutional network. Each builds tasks from a user's own arrays. Losses of one kind compare equal,
so that tasks share compiled programs.
"""
