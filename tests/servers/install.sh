#!/bin/sh
# Install what the tests use and what does not come from PyPI: Redis, MariaDB, Chromium, nginx, Prometheus (for promtool,
# its checker of rules), and Java with Maven, which fetches Kafka. Does nothing for those that are there. Starts no service:
# every test starts its own server, in its own folder.
set -eu

# Debian keeps servers here, and leaves it out of the PATH of ordinary users.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

missing=""
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
command -v mariadbd >/dev/null 2>&1 || missing="$missing mariadb-server"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v nginx >/dev/null 2>&1 || missing="$missing nginx-light"
command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v java >/dev/null 2>&1 || missing="$missing default-jre-headless"
command -v mvn >/dev/null 2>&1 || missing="$missing maven"

fetch_kafka() {
    # Without it the tests say why they are skipped, so this is no reason to stop here.
    sh "$(dirname "$0")/kafka.sh" >/dev/null || echo "Kafka could not be fetched; its tests try again." >&2
}

if [ -z "$missing" ]; then
    fetch_kafka
    echo "redis-server, mariadbd, chromium, nginx, promtool, java and mvn are installed."
    exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing:$missing. Please install them yourself, for instance:" >&2
    echo "  macOS:   brew install redis mariadb openjdk maven chromium nginx prometheus" >&2
    echo "  Fedora:  dnf install redis mariadb-server chromium nginx golang-github-prometheus java-21-openjdk-headless maven" >&2
    echo "Tests that need them are skipped until then." >&2
    exit 1
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "Missing:$missing. Run this as root, or install sudo." >&2; exit 1; }
    as_root="sudo"
fi

# While this file forbids it, Debian's packages do not start their services.
policy=/usr/sbin/policy-rc.d
ours=""
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
    ours=yes
fi
trap '[ -z "$ours" ] || $as_root rm -f "$policy"' EXIT

echo "Installing:$missing"
install() {
    # shellcheck disable=SC2086  # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
install 2>/dev/null || { $as_root apt-get update -qq && install; }
echo "Installed:$missing"
fetch_kafka
