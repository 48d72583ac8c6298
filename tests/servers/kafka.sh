#!/bin/sh
# Fetch the jars of the broker that kafka.xml names, once, and print the folder that they are in.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n '/kafka_2.13/,/<version>/s/.*<version>\(.*\)<\/version>.*/\1/p' "$here/kafka.xml")
folder="$here/../../.kafka/$version"

if [ ! -d "$folder/jars" ]; then
    mkdir -p "$folder"
    # A folder that has its name is complete, whatever happened to an earlier try.
    trap 'rm -rf "$folder/jars.$$"' EXIT
    mvn --quiet --batch-mode --file "$here/kafka.xml" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$folder/jars.$$" >&2
    mv "$folder/jars.$$" "$folder/jars"
fi
echo "$folder/jars"
