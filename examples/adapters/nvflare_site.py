"""A site of the NVFLARE example, which is there with a given chance."""

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
    """Reply with one in the own coordinate: the model sums the weights that were given.

    Parameters
    ----------
    chances : mapping of str to float
        How likely each site is to be there. An empty reply is an absence, which NVFLARE skips.
    """

    def __init__(self, chances: dict[str, float]) -> None:
        super().__init__()
        self.chances = chances

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Reply to a task, the same way whichever rule the server averages by."""
        name = fl_ctx.get_identity_name()
        seed = (crc32(name.encode()), shareable.get_header(AppConstants.CURRENT_ROUND))
        there = np.random.default_rng(seed).random() < self.chances[name]
        unit = np.array([float(site == name) for site in self.chances])
        params = {NPConstants.NUMPY_KEY: unit} if there else {}
        return FLModelUtils.to_shareable(FLModel(params=params, params_type=ParamsType.DIFF))
