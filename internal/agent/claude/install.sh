# Installs the pinned npm package of Claude Code into an image.
# Arguments: package, version, its sha512 in hexadecimal, where the program goes.
set -eu
package=$1 version=$2 sum=$3 program=$4
command -v npm >/dev/null || { echo "there is no npm in the image that Claude Code is installed on" >&2; exit 69; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent --cache "$work/cache" "$package@$version" >/dev/null
echo "$sum  $(ls ./*.tgz)" | sha512sum --check --status ||
	{ echo "$package $version is not the package that was pinned" >&2; exit 1; }
tar -xzf ./*.tgz package/claude
mkdir -p "$(dirname "$program")"
mv package/claude "$program"
chmod 755 "$program"
"$program" --version
