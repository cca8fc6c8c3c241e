#!/usr/bin/env bash
# Makes the charting library of the HTML report anew: echarts.min.js, with the licences of what is in it.
# The versions are locked in package-lock.json; the same versions give the same bytes. Print its digest into
# src/latdoctor/report/page/assets.py when they change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
to=../src/latdoctor/report/page/files/echarts

npm ci --silent --no-audit --no-fund
npx esbuild entry.js --bundle --minify --format=iife --global-name=echarts --target=es2019 --charset=utf8 \
  --legal-comments=none --log-level=warning --outfile="$to/echarts.min.js"
cp node_modules/echarts/LICENSE "$to/LICENSE"
cp node_modules/echarts/NOTICE "$to/NOTICE"
cp node_modules/zrender/LICENSE "$to/LICENSE-zrender"
cp node_modules/echarts/licenses/LICENSE-d3 "$to/LICENSE-d3"
sha256sum "$to/echarts.min.js"
