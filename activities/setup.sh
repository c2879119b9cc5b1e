# Runs the session's setup script in the workspace, once to its end.
# Arguments: workspace, state directory. Stdin: the script.
set -eu
workspace=$1 begun=$2/workspace-setup-begun mark=$2/workspace-set-up
[ ! -e "$mark" ] || exit 0
[ ! -e "$begun" ] || exit 70
script=$(mktemp)
trap 'rm -f "$script"' EXIT
cat >"$script"
: >"$begun"
cd "$workspace"
sh "$script" </dev/null || {
	code=$?
	rm -f "$begun"
	exit "$code"
}
: >"$mark"
