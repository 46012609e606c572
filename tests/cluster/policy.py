# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicies of a cluster, enforced: rules of nftables on each node, made of what the API server has.

No policy engine could be had as a Go module that builds by itself, so this one reads the policies as they were applied
(the charts' rendered ones among them) and the pods, and writes for each node one chain for packets that come to a pod
that a policy selects: what the policy lets in passes, the rest is dropped.  Ingress alone: nothing here has Egress
rules, and one that has is refused rather than overlooked.  As anywhere, what a node's own processes send to its pods
(the kubelet's probes) is not asked about.  Looked at once a second.
"""
import ipaddress
import subprocess
import threading

TABLE = "weightbridge_test_policies"


def matches(selector, labels):
    """A LabelSelector; {} selects everything."""
    if any(labels.get(k) != v for k, v in (selector or {}).get("matchLabels", {}).items()):
        return False
    for e in (selector or {}).get("matchExpressions", []):
        has, values = e["key"] in labels, e.get("values", [])
        if not {"Exists": has, "DoesNotExist": not has, "In": labels.get(e["key"]) in values,
                "NotIn": labels.get(e["key"]) not in values}[e["operator"]]:
            return False
    return True


def addresses(pod):
    """Of a pod that has a network of its own."""
    if pod["spec"].get("hostNetwork") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return []
    return [x["ip"] for x in pod.get("status", {}).get("podIPs", [])]


def labels(o):
    return o["metadata"].get("labels", {})


def is_of(pod, peer, ns, namespaces):
    """Whether a NetworkPolicyPeer of a policy in `ns` means this pod."""
    mine = pod["metadata"]["namespace"]
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], namespaces.get(mine, {})):
            return False
    elif mine != ns:
        return False
    return matches(peer.get("podSelector"), labels(pod))


def sources(rule, ns, pods, namespaces):
    """Networks that a rule lets in, and those that it does not; None: everybody."""
    if not rule.get("from"):
        return None
    allowed, but = [], []
    for peer in rule["from"]:
        if "ipBlock" in peer:
            allowed.append(peer["ipBlock"]["cidr"])
            but += peer["ipBlock"].get("except", [])
        else:
            allowed += [a for p in pods if is_of(p, peer, ns, namespaces) for a in addresses(p)]
    return allowed, but


def ports(rule, pod):
    """(protocol, port) that a rule is about at this pod, names looked up; None: every port."""
    if not rule.get("ports"):
        return None
    named = {(p.get("protocol", "TCP"), p["name"]): p["containerPort"] for c in
             pod["spec"].get("initContainers", []) + pod["spec"]["containers"] for p in c.get("ports", []) if "name" in p}
    found = []
    for p in rule["ports"]:
        proto, port = p.get("protocol", "TCP"), p.get("port")
        if isinstance(port, str):
            port = named.get((proto, port))
        if port is not None:
            found.append((proto.lower(), f"{port}-{p['endPort']}" if "endPort" in p else str(port)))
        elif "port" not in p:
            found.append((proto.lower(), "0-65535"))
    return found


def family(address):
    return "ip" if ipaddress.ip_network(address, strict=False).version == 4 else "ip6"


def chain_of(pod, policies, pods, namespaces, fam):
    """What is let in to a pod by addresses of one family, as statements."""
    lines = []
    for policy in policies:
        for rule in policy["spec"].get("ingress", []):
            who, what = sources(rule, policy["metadata"]["namespace"], pods, namespaces), ports(rule, pod)
            heads = [f"meta l4proto {proto} th dport {port} " for proto, port in what] if what is not None else [""]
            for head in heads:
                if who is None:
                    lines.append(head + "accept")
                    continue
                allowed = sorted({a for a in who[0] if family(a) == fam})
                but = sorted({a for a in who[1] if family(a) == fam})
                if allowed:
                    lines.append(head + (f"{fam} saddr != {{ {', '.join(but)} }} " if but else "") +
                                 f"{fam} saddr {{ {', '.join(allowed)} }} accept")
    return lines + ["counter drop"]


def ruleset(policies, pods, namespaces):
    """All of it as nft reads it; the same text for the same cluster."""
    jumps, chains = [], []
    for pod in sorted(pods, key=lambda p: (p["metadata"]["namespace"], p["metadata"]["name"])):
        mine = [x for x in policies if x["metadata"]["namespace"] == pod["metadata"]["namespace"] and
                matches(x["spec"]["podSelector"], labels(pod))]
        for i, address in enumerate(addresses(pod) if mine else []):
            name = f"pod_{pod['metadata']['uid'].replace('-', '_')}_{i}"
            chains.append(f"  chain {name} {{\n    " + "\n    ".join(
                chain_of(pod, mine, pods, namespaces, family(address))) + "\n  }")
            jumps.append(f"    {family(address)} daddr {address} jump {name}")
    head = "    type filter hook forward priority 0; policy accept;\n    ct state established,related accept"
    return (f"table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n" + "\n".join(chains) +
            f"\n  chain forward {{\n{head}\n" + "\n".join(jumps) + "\n  }\n}\n")


class Policies:
    """Keeps the nodes' rules what the cluster's policies say."""

    def __init__(self, c):
        self.c, self.text, self.trouble = c, None, None
        self.news = threading.Condition()
        self.rounds = 0
        threading.Thread(target=self.run, daemon=True).start()

    def look(self):
        policies = self.c.get("/apis/networking.k8s.io/v1/networkpolicies")["items"]
        for x in policies:
            assert x["spec"].get("policyTypes", ["Ingress"]) == ["Ingress"], f"{x['metadata']['name']} is not about Ingress alone"
        if not policies and self.text is None:
            return
        pods = self.c.get("/api/v1/pods")["items"] if policies else []
        namespaces = {n["metadata"]["name"]: labels(n) for n in self.c.get("/api/v1/namespaces")["items"]}
        text = ruleset(policies, pods, namespaces)
        if text != self.text:
            for n in self.c.nodes:
                subprocess.run([*n.inside, "nft", "-f", "-"], input=text, check=True, capture_output=True, text=True)
            self.text = text

    def run(self):
        while True:
            try:
                self.look()
                self.trouble = None
            except (OSError, AssertionError, KeyError, subprocess.CalledProcessError) as e:
                self.trouble = e  # the API server may be restarting
            except Exception as e:  # its answers may be halves then
                self.trouble = e
            with self.news:
                self.rounds += 1
                self.news.notify_all()
                self.news.wait(1)

    def settled(self):
        """Return when what was in the cluster at the call is in the rules."""
        with self.news:
            target = self.rounds + 2
            self.news.notify_all()
            while self.rounds < target:
                self.news.wait(1)
        assert not self.trouble, self.trouble

    def dropped(self):
        """Packets that were dropped so far, on all nodes."""
        total = 0
        for n in self.c.nodes:
            out = n.run("nft", "list", "table", "inet", TABLE, check=False)
            total += sum(int(x.split("packets ")[1].split()[0]) for x in out.splitlines() if "counter packets" in x)
        return total
