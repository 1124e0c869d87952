"""The rules on deep networks: convolutional networks on images, with uneven availability."""
