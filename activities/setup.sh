# Runs the session's setup script in the workspace.
# Arguments: workspace, state directory, operation, time limit in seconds, size of the script. Stdin: the script.
#
# One attempt runs the script; the others wait for the lock and return its result. The lock belongs to
# this shell, not to the script, so that a daemon started by the script does not hold it. The operation is
# the number of the session's transition: an attempt with the same number never runs the script again; an attempt
# after a recover does.
#
#   workspace-set-up        the script succeeded
#   workspace-setup-begun   "operation pid start-time" of the script that was started
#   workspace-setup-result  "operation exit-code", then the end of the script's output
set -eu
workspace=$1 state=$2 operation=$3 limit=$4 size=$5
mark=$state/workspace-set-up begun=$state/workspace-setup-begun result=$state/workspace-setup-result
[ ! -e "$mark" ] || exit 0

script=$(mktemp) output=$(mktemp)
trap 'rm -f "$script" "$output" "$output.late"' EXIT
cat >"$script"
[ "$(wc -c <"$script")" -eq "$size" ] || { echo "the setup script arrived truncated" >&2; exit 75; }

# finish CODE: publishes the contents of $output as the result of this operation.
finish() {
	{ echo "$operation $1"; tail -c 4000 "$output"; } >"$result.new"
	mv -f "$result.new" "$result"
	rm -f "$begun"
	tail -c 4000 "$output"
	exit "$1"
}

exec 9>>"$state/workspace-setup-lock"
flock 9
[ ! -e "$mark" ] || exit 0
if [ -e "$result" ]; then
	read -r of code <"$result"
	if [ "$of" = "$operation" ]; then
		tail -n +2 "$result"
		exit "$code"
	fi
	rm -f "$result"
fi

if [ -e "$begun" ]; then
	# The previous attempt was killed before the script ended. Kill the script's remaining processes:
	# its exit code is unknown, and two scripts must not run in one directory.
	of='' pid='' start=''
	read -r of pid start <"$begun" || :
	stat=$(cat "/proc/${pid:-none}/stat" 2>/dev/null) || stat=''
	set -- ${stat##*) }
	if [ -n "$start" ] && [ "${20:-}" = "$start" ]; then
		kill -s KILL -- "-$pid" 2>/dev/null || :
	fi
	if [ "${of:-$operation}" = "$operation" ]; then
		echo "the setup script was killed before it ended" >"$output"
		finish 70
	fi
	rm -f "$begun"
fi

cd "$workspace"
# The script has its own process group, recorded before the script starts and before the lock can be released.
setsid sh -c '
	stat=$(cat /proc/$$/stat); set -- "$1" "$2" "$3" ${stat##*) }
	echo "$2 $$ ${23}" >"$3.new" && mv -f "$3.new" "$3" && exec 9>&- && exec sh "$1"
' setup "$script" "$operation" "$begun" </dev/null >"$output" 2>&1 &
pid=$!
setsid sh -c 'sleep "$1"; : >"$3"; kill -s KILL -- "-$2"' watchdog "$limit" "$pid" "$output.late" </dev/null >/dev/null 2>&1 9>&- &
watchdog=$!
code=0
wait "$pid" || code=$?
kill -s KILL -- "-$watchdog" 2>/dev/null || :
if [ -e "$output.late" ]; then
	echo "the setup script did not end within $limit seconds and was killed" >>"$output"
	finish 124
fi
[ "$code" -eq 0 ] || finish "$code"
: >"$mark"
rm -f "$begun"
