"""A site of the NVFLARE example, which is available with a given probability."""

from zlib import crc32

import numpy as np
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.np.constants import NPConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils


class Site(Executor):
    """Reply with one in the site's own coordinate, so that the model sums the weights.

    Parameters
    ----------
    chances : mapping of str to float
        Probability that each site is available. An empty reply is an absence, which NVFLARE skips.
    """

    def __init__(self, chances: dict[str, float]) -> None:
        super().__init__()
        self.chances = chances

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Reply to a task, in the same way for every rule of the server."""
        name = fl_ctx.get_identity_name()
        seed = (crc32(name.encode()), shareable.get_header(AppConstants.CURRENT_ROUND))
        available = np.random.default_rng(seed).random() < self.chances[name]
        unit = np.array([float(site == name) for site in self.chances])
        params = {NPConstants.NUMPY_KEY: unit} if available else {}
        return FLModelUtils.to_shareable(FLModel(params=params, params_type=ParamsType.DIFF))
