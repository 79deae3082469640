"""Vision transformers (Dosovitskiy et al. 2021, arXiv 2010.11929) of any size."""

import tensorflow as tf

from labs.run.errors import LabError

layers = tf.keras.layers


@tf.keras.utils.register_keras_serializable("labs")
class Tokens(tf.keras.layers.Layer):
    """Prepends a learned class token and adds a learned position to each token: [n, p, d] -> [n, p + 1, d]."""

    def build(self, shape):
        _, patches, width = shape
        self.first = self.add_weight(name="first", shape=[1, 1, width], initializer="zeros")
        self.positions = self.add_weight(name="positions", shape=[1, patches + 1, width],
                                         initializer=tf.keras.initializers.RandomNormal(stddev=0.02))

    def call(self, patches):
        first = tf.repeat(self.first, tf.shape(patches)[0], axis=0)
        return tf.concat([first, patches], axis=1) + self.positions


def vit(image_size: int, classes: int, width: int, depth: int, heads: int, patch_size: int = 16) -> tf.keras.Model:
    """Return a vision transformer with pre-norm blocks: attention, then a hidden layer of four times the width.

    Input uint8 [batch, image_size, image_size, 3], output probabilities [batch, classes]. At 224 pixels, with 1000
    classes, width 768 (the size of a token's vector), depth 12 and 12 heads it is ViT-B and has 86,567,656 parameters.
    Each patch is a token.
    """
    if image_size % patch_size or width % heads:
        raise LabError(f"patches of {patch_size} in images of {image_size} pixels, {heads} heads in a width of "
                       f"{width}: both must divide evenly")
    images = layers.Input((image_size, image_size, 3), dtype="uint8")
    x = layers.Rescaling(1 / 127.5, offset=-1)(images)
    x = layers.Conv2D(width, patch_size, patch_size)(x)
    x = Tokens()(layers.Reshape((-1, width))(x))
    for _ in range(depth):
        x = _block(x, width, heads)
    x = layers.LayerNormalization(epsilon=1e-6)(x)[:, 0]
    return tf.keras.Model(images, layers.Dense(classes, activation="softmax")(x), name="vit")


def _block(x, width: int, heads: int):
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y)])
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(4 * width, activation="gelu")(y)
    return layers.Add()([x, layers.Dense(width)(y)])
