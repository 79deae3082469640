"""Models: functions that return an uncompiled `keras.Model` for uint8 images."""

from labs.run import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, {
    "cifar": ["cifar_cnn", "cifar_cnn_bn", "resnet10", "resnet18"],
    "cnn": ["mnist_cnn", "photo_cnn"],
    "denoising": ["denoiser", "denoising_error", "identity", "psnr"],
    "faces": ["age_model"],
    "transformer": ["vit"],
})
