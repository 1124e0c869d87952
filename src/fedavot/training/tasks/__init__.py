"""Ready-made tasks, one model a file, and their exact optima where there is a closed form.

`linear` is least squares, least absolute deviations and the hinge, `optima` has their minima,
`softmax` is multinomial logistic regression, `mlp` a network with one hidden layer, `cnn` a small
convolutional one. Each builds tasks from a user's own arrays. Losses of a kind are equal, so that
tasks share compiled programs.
"""
