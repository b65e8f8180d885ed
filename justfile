# One door for every task: `just` lists them. `pip install -e '.[dev]'` brings `just` itself (package rust-just).

default:
    @just --list

# Everything that must pass before a commit (12 minutes on two cores)
check: lint types contracts test

# Mend format and what can be mended by machine
fix:
    ruff format .
    ruff check --fix .

# Format and lint
lint:
    ruff format --check .
    ruff check .

# Types, strictly; of the SDK also as on Windows
types:
    mypy
    mypy --platform win32 -p deniable -p deniable_query

# Which floor may import which
contracts:
    lint-imports

# The default tests, or some: just test tests/client -k tape (10 minutes on two cores)
test *arguments:
    pytest -q -n auto --dist worksteal -m 'not campaign' {{arguments}}

# The system as it is run: its processes, units, images' commands, pages and failures; and every store (15 minutes, Linux)
test-system *arguments:
    pytest -q -n auto --dist worksteal --every-store -m '(system or other_store) and not campaign' tests {{arguments}}

# Tests that simulate at length (5 minutes on two cores)
campaigns *arguments:
    pytest -q -n auto --dist worksteal --every-store -m campaign tests {{arguments}}

# Both at once, as `.ci/run` has them beside the default tests: some wait for a disk or a process while others compute
test-others *arguments:
    pytest -q -n 3 --dist worksteal --every-store -m 'system or other_store or campaign' tests {{arguments}}

# Campaigns with more cases and longer ones, as each night has them (half an hour)
nightly *arguments:
    pytest -q -n auto --dist worksteal --every-store --nightly -m campaign tests {{arguments}}

# The whole path on real flights
demo *arguments:
    deniable demo {{arguments}}

# Prove every mechanism by walking all of its draws
prove *arguments:
    deniable prove {{arguments}}

# Kill, stop and cut off everything under load, by seed: nothing lost, nothing counted twice
chaos *arguments:
    python benchmarks/chaos.py {{arguments}}

# Send whatever reaches new code, by coverage: answered as documented, counted as answered (pip install atheris)
fuzz *arguments:
    python benchmarks/fuzz.py {{arguments}}

# Plant mistakes, one at a time: the tests must notice nearly all. `just mutants --only ledger` plants those of an area
mutants *arguments:
    python benchmarks/mutants.py {{arguments}}

# Look at every page in a browser, and keep the pictures in the folder pictures; one of them is the README's
pictures:
    pytest -q tests/system/browser --pictures pictures
    cp pictures/dashboard.png docs/dashboard.png

# Build the scripts of web pages that servers hand out, from client/typescript (needs Node, and fetches its tools)
scripts:
    deniable registry show --typescript server/deniable_server/web/metrics.toml >client/typescript/demo/registry.ts
    cd client/typescript && npm ci --ignore-scripts --silent && npm run --silent script && npm run --silent demo
    cp client/typescript/dist/deniable.js server/deniable_server/web/deniable.js
    cp client/typescript/dist/demo.js server/deniable_server/web/demo/demo.js

# The site, with warnings as errors, into the folder site
docs:
    sphinx-build -q -W --keep-going -b dirhtml docs site

# Figures of the README
bench:
    python benchmarks/counting.py
    python benchmarks/rivals.py
    python benchmarks/sdk.py

# Renew what the images are built of: one version of each that also runs on the lowest Python that is promised (pip install uv)
pins:
    uv pip compile {{pin}} --extra server --extra questions --extra export pyproject.toml -o deploy/requirements.txt
    uv pip compile {{pin}} --extra ingest --extra relay --constraint deploy/requirements.txt pyproject.toml \
        -o deploy/requirements-ingest.txt
    uv pip compile {{pin}} --extra relayserver --constraint deploy/requirements.txt pyproject.toml \
        -o deploy/requirements-relay.txt
    python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
        | uv pip compile {{pin}} - -o deploy/requirements-build.txt

# The wheel as it would be published
wheel:
    rm -rf dist && hatchling build && twine check --strict dist/* && check-wheel-contents dist/*.whl

# The package for npm as it would be published, into the folder npm (needs Node, and fetches its tools)
npm:
    rm -rf npm && mkdir npm
    cd client/typescript && npm ci --ignore-scripts --silent && npm run --silent build && npx publint --strict
    cd client/typescript && npm pack --silent --pack-destination ../../npm

# What the lock file of the image `full` has, which is all that wheel and images need, as CycloneDX, into the folder sbom
sbom:
    mkdir -p sbom
    python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
        --output-file sbom/deniable.cdx.json deploy/requirements.txt

# Whether the pins can be installed, of which licences they are, and what vulnerabilities are known (needs a package index)
scan:
    python .ci/scan.py

pin := "--upgrade --python-version 3.11 --universal --fork-strategy fewest --generate-hashes --no-annotate --custom-compile-command 'just pins'"
