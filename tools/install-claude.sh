#!/bin/sh
# Installs the pinned Claude Code into a cache of this user, unless it is there, and prints where it
# is. Nothing is installed for the whole machine.
set -eu

version=2.1.329
case "$(uname -m)" in
x86_64) arch=x64 sum='fa7e25bb5b9b600a74d98d17fcc0149f1c3dc98e921c767bec5f88a16f95d3056816e888f68a5d1fa8287e37f5e205c908460c4cda64b3b1a7d62f1765328058' ;;
aarch64) arch=arm64 sum='2221b9ba6153a120955aa075944b31c702312a0c4f5f26770d153dd79bfc278073e50dc9a6c94cd1ec359b9c9a4fe9455c13ef6319ac1208b45c8ebc5c7343d0' ;;
*)
	echo "install-claude: there is no Claude Code for $(uname -m)" >&2
	exit 1
	;;
esac
package=claude-code-linux-$arch
dir=${XDG_CACHE_HOME:-$HOME/.cache}/overwinter/$package-$version
program=$dir/claude
if [ -x "$program" ]; then
	echo "$program"
	exit 0
fi

mkdir -p "$(dirname "$dir")"
work=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "install-claude: fetching @anthropic-ai/$package $version" >&2
if ! command -v npm >/dev/null; then
	echo "install-claude: there is no npm to fetch the package with: install it (on Debian: apt-get install npm)" >&2
	exit 1
fi
(cd "$work" && npm pack --silent "@anthropic-ai/$package@$version" >/dev/null) || fetched=no
if [ "${fetched:-yes}" = no ]; then
	echo "install-claude: the npm registry does not give @anthropic-ai/$package $version: is it reachable from here?" >&2
	exit 1
fi
if ! echo "$sum  $(echo "$work"/*.tgz)" | sha512sum --check --status; then
	echo "install-claude: @anthropic-ai/$package $version is not the package that was pinned" >&2
	exit 1
fi
tar -xzf "$work"/*.tgz -C "$work" package/claude
chmod 755 "$work/package/claude"
# Two at once: whoever is second finds the directory and leaves it.
mv -T "$work/package" "$dir" 2>/dev/null || [ -x "$program" ]
echo "$program"
