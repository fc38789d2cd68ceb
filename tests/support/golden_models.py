"""Models with every kind of layer that the comparison has to tell apart."""

import numpy as np
import onnx
from tests.support.models import parse


def _weights(seed):
    rng = np.random.default_rng(seed)

    def draw(*shape, around=0.0):
        return (around + 0.3 * rng.standard_normal(shape)).astype(np.float32)

    return draw


def cnn() -> onnx.ModelProto:
    """Conv, BatchNormalization, a residual, an Identity, pooling, Gemm; x (1, 3, 12, 12)."""
    draw = _weights(0)
    return parse(
        """cnn (float[1, 3, 12, 12] x) => (float[1, 10] y) {
            c1 = Conv<pads = [1, 1, 1, 1]>(x, k1, kb1)
            n1 = BatchNormalization(c1, s1, t1, m1, v1)
            r1 = Relu(n1)
            c2 = Conv<pads = [1, 1, 1, 1]>(r1, k2)
            n2 = BatchNormalization(c2, s1, t1, m1, v1)
            a = Add(n2, r1)
            r2 = Relu(a)
            i = Identity(r2)
            g = GlobalAveragePool(i)
            f = Flatten(g)
            y = Gemm(f, w, b)
        }""",
        k1=draw(8, 3, 3, 3),
        kb1=draw(8),
        k2=draw(8, 8, 3, 3),
        s1=draw(8, around=1.0),
        t1=draw(8),
        m1=draw(8),
        v1=np.abs(draw(8, around=1.0)),
        w=draw(8, 10),
        b=draw(10),
    )


def transformer() -> onnx.ModelProto:
    """One attention block with a mask, GELU, LayerNormalization and RMS norm as parts.

    x (B, S, 32) and mask (B, S) of 0 and 1 -> y (B, S, 32).
    """
    draw = _weights(1)
    return parse(
        """block (float[B, S, 32] x, int64[B, S] mask) => (float[B, S, 32] y) {
            q0 = MatMul(x, wq)
            q1 = Add(q0, bq)
            q2 = Reshape(q1, heads)
            q = Transpose<perm = [0, 2, 1, 3]>(q2)
            k0 = MatMul(x, wk)
            k2 = Reshape(k0, heads)
            k = Transpose<perm = [0, 2, 3, 1]>(k2)
            v0 = MatMul(x, wv)
            v2 = Reshape(v0, heads)
            v = Transpose<perm = [0, 2, 1, 3]>(v2)
            s = MatMul(q, k)
            ss = Mul(s, scale)
            mf = Cast<to = 1>(mask)
            one = Constant<value_float = 1.0>()
            im = Sub(one, mf)
            big = Constant<value_float = -3.4028234663852886e38>()
            mm = Mul(im, big)
            axes = Constant<value_ints = [1, 2]>()
            m4 = Unsqueeze(mm, axes)
            sm = Add(ss, m4)
            p = Softmax<axis = -1>(sm)
            c = MatMul(p, v)
            ct = Transpose<perm = [0, 2, 1, 3]>(c)
            cr = Reshape(ct, flat)
            o = MatMul(cr, wo)
            res = Add(o, x)
            ln = LayerNormalization<axis = -1, epsilon = 1e-12>(res, g, b)
            f1 = MatMul(ln, w1)
            h1 = Div(f1, root2)
            e = Erf(h1)
            e1 = Add(e, one)
            e2 = Mul(f1, e1)
            gl = Mul(e2, half)
            f2 = MatMul(gl, w2)
            r2 = Add(f2, ln)
            pw = Pow(r2, two)
            mean = ReduceMean<keepdims = 1>(pw, last)
            me = Add(mean, eps)
            root = Sqrt(me)
            dv = Div(r2, root)
            y = Mul(dv, g)
        }""",
        wq=draw(32, 32),
        bq=draw(32),
        wk=draw(32, 32),
        wv=draw(32, 32),
        wo=draw(32, 32),
        w1=draw(32, 64),
        w2=draw(64, 32),
        g=draw(32, around=1.0),
        b=draw(32),
        heads=np.array([0, 0, 4, 8]),
        flat=np.array([0, 0, 32]),
        scale=np.float32(8**-0.5),
        root2=np.float32(2**0.5),
        half=np.float32(0.5),
        two=np.float32(2.0),
        last=np.array([-1]),
        eps=np.float32(1e-6),
    )


def inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return inputs of one of the models above."""
    rng = np.random.default_rng(7)
    if model.graph.name == "cnn":
        return {"x": rng.standard_normal((1, 3, 12, 12)).astype(np.float32)}
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return {"x": rng.standard_normal((2, 5, 32)).astype(np.float32), "mask": mask}
