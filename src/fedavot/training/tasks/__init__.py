"""Ready-made tasks from a user's own arrays, or drawn from a seed.

`linear` has least squares, least absolute deviations and the hinge loss with their exact optima,
`classifiers` multinomial logistic regression, a network with one hidden layer, and a small
convolutional network.
"""
