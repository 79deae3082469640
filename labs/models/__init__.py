"""Models: functions that return an uncompiled `keras.Model` for uint8 images."""

from typing import TYPE_CHECKING

from labs.run import attach_lazily

if TYPE_CHECKING:
    from labs.models.batch_norm import BatchNorm
    from labs.models.cifar import cifar_cnn, cifar_cnn_bn, resnet10, resnet18
    from labs.models.cnn import mnist_cnn, photo_cnn
    from labs.models.denoising import denoiser, denoising_error, psnr
    from labs.models.faces import age_model
    from labs.models.transformer import vit
else:
    __getattr__, __dir__, __all__ = attach_lazily(__name__, __file__)
