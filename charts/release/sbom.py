# SPDX-License-Identifier: Apache-2.0
"""sbom.py FOLDER VERSION   SPDX 2.3 as JSON of a release: each file in FOLDER with its SHA-256, and the Debian packages
whose libraries are in the wheel, or which the .deb ask for, read from the lines of libraries.sh on standard input."""
import hashlib
import json
import os
import re
import sys

MADE_BY = "Tool: weightbridge sbom.py"


def spdx_id(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for piece in iter(lambda: f.read(1 << 20), b""):
            h.update(piece)
    return h.hexdigest()


def package(name, version, purl, **more):
    return {"SPDXID": spdx_id(name), "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
            "copyrightText": "NOASSERTION", "externalRefs": [
                {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}], **more}


def document(folder, version, libraries, created):
    own = package("weightbridge", version, f"pkg:generic/weightbridge@{version}", licenseDeclared="Apache-2.0",
                  licenseConcluded="Apache-2.0")
    packages, links = [own], [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                               "relatedSpdxElement": own["SPDXID"]}]
    for line in libraries:
        name, its, source, *_ = line.split()
        p = package(name, its, f"pkg:deb/debian/{name}@{its}", sourceInfo=f"Debian source package {source}")
        packages.append(p)
        links.append({"spdxElementId": own["SPDXID"], "relationshipType": "DYNAMIC_LINK", "relatedSpdxElement": p["SPDXID"]})
    files = []
    for name in sorted(os.listdir(folder)):
        files.append({"SPDXID": spdx_id("file-" + name), "fileName": "./" + name, "copyrightText": "NOASSERTION",
                      "licenseConcluded": "NOASSERTION" if name.endswith(".whl") else "Apache-2.0",
                      "checksums": [{"algorithm": "SHA256", "checksumValue": digest(os.path.join(folder, name))}]})
        links.append({"spdxElementId": own["SPDXID"], "relationshipType": "GENERATES", "relatedSpdxElement": files[-1]["SPDXID"]})
    space = hashlib.sha256(json.dumps([packages, files]).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"weightbridge-{version}", "documentNamespace": f"https://spdx.org/spdxdocs/weightbridge-{version}-{space}",
            "creationInfo": {"created": created, "creators": [MADE_BY]}, "packages": packages, "files": files,
            "relationships": links}


if __name__ == "__main__":
    json.dump(document(sys.argv[1], sys.argv[2], sys.stdin.read().splitlines(), os.environ["CREATED"]), sys.stdout, indent=1)
    print()
