"""Ready-made tasks, one model a file, and their exact optima where there is a closed form.

`linear` is least squares, `softmax` multinomial logistic regression, `cnn` a small convolutional
network, `nonsmooth` least absolute deviations and the hinge. Each builds tasks from a user's own
arrays as well. Losses are module-level functions, so that tasks of a kind share compiled programs.
"""
