# Unpacks a pinned npm package into a directory, unless it is there.
# Arguments: package, version, its sha512 in hexadecimal for x64 and for arm64, directory.
# {arch} in package and version stands for the machine's architecture.
set -eu
package=$1 version=$2 dir=$5
[ ! -d "$dir" ] || exit 0
case "$(uname -m)" in
x86_64) arch=x64 sum=$3 ;;
aarch64) arch=arm64 sum=$4 ;;
*) arch= sum= ;;
esac
[ -n "$sum" ] || { echo "there is no $package for $(uname -m)" >&2; exit 69; }
package=$(echo "$package" | sed "s/{arch}/$arch/") version=$(echo "$version" | sed "s/{arch}/$arch/")
command -v npm >/dev/null || { echo "there is no npm to fetch $package with: install it (on Debian: apt-get install npm)" >&2; exit 69; }
mkdir -p "$(dirname "$dir")"
work=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$work"' EXIT
# npm pack would also read what is in the tarball, which takes as long as everything else.
npm cache add --silent --cache "$work/cache" "$package@$version" >/dev/null ||
	{ echo "the npm registry does not give $package $version: is it reachable from here?" >&2; exit 1; }
tarball=$(find "$work/cache/_cacache/content-v2" -type f -exec sha512sum {} + | sed -n "s/^$sum  //p")
[ -n "$tarball" ] || { echo "$package $version is not the package that was pinned" >&2; exit 1; }
mkdir "$work/unpacked"
tar -xzf "$tarball" -C "$work/unpacked" --strip-components=1 --no-same-owner
# Two at once: the second one finds the directory and leaves it.
mv -T "$work/unpacked" "$dir" 2>/dev/null || [ -d "$dir" ]
