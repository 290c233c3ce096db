"""FedAvg whose number of participants changes from round to round, as it does among devices. TENSORPULL_EACH: it is this one, of other sites each time."""

import os
import random

from nvflare.app_common.workflows.fedavg import FedAvg


class VaryingFedAvg(FedAvg):
    def sample_clients(self, num_clients=None):
        clients = sorted(client.name for client in self.engine.get_clients())
        of_this_round = random.Random(self.current_round)
        chosen = of_this_round.sample(clients, int(os.environ.get("TENSORPULL_EACH", 0)) or of_this_round.randint(min(2, len(clients)), len(clients)))
        self.info(f"Sampled clients: {chosen}")
        return chosen
