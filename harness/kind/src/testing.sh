#!/bin/sh
# A `kind` and a container engine for tests, by the name under which it is called. It logs what it is asked for
# to $FAKE/log, keeps containers in $FAKE/containers (name|cluster|status|ours) and networks in $FAKE/networks,
# and does what a test puts into $FAKE/rules/<program>-<first argument> before anything else.
PATH=/usr/bin:/bin
me=${0##*/}
echo "$me $*" >>"$FAKE/log"
containers=$FAKE/containers
touch "$containers" "$FAKE/networks"

# What follows the option $1 among the further arguments.
after() {
    wanted=$1
    shift
    while [ $# -gt 1 ]; do
        [ "$1" = "$wanted" ] && echo "$2" && return
        shift
    done
}

name=$(after --name "$@")
rule=$FAKE/rules/$me-$1
if [ -f "$rule" ]; then . "$rule"; fi

case "$me $1 $2" in
"kind version "*) echo 0.33.0 ;;
"kind create "*)
    for node in control-plane worker worker2; do
        echo "$name-$node|$name|Up 2 seconds|ours" >>"$containers"
    done
    echo kind >"$FAKE/networks"
    echo 'apiVersion: v1' >"$(after --kubeconfig "$@")"
    ;;
"kind delete "*) sed -i "/|$name|/d" "$containers" ;;
"kind get clusters") cut -d'|' -f2 "$containers" | sort -u ;;
"kind get nodes") grep "|$name|" "$containers" | cut -d'|' -f1 ;;
"kind get kubeconfig") echo 'apiVersion: v1' ;;
"kind load "* | "kind export "*) ;;
*" info "*) cat "$FAKE/info" ;;
*" ps "*)
    cluster=$(after --filter "$@")
    case "$cluster" in
    label=io.x-k8s.kind.cluster=*) cluster="|${cluster#label=io.x-k8s.kind.cluster=}|" ;;
    *) cluster='' ;;
    esac
    case "$*" in
    *volume=*) ours='|ours$' ;;
    *) ours='' ;;
    esac
    grep -F "$cluster" "$containers" | grep "$ours" | cut -d'|' -f1-3
    ;;
*" rm -f")
    for container; do sed -i "/^$container|/d" "$containers"; done
    ;;
*" network ls") cat "$FAKE/networks" ;;
*" network rm") : >"$FAKE/networks" ;;
*" images "*) cat "$FAKE/images" ;;
*" image inspect") echo sha256:0123 ;;
*" save "*) : >"$3" ;;
*" exec "* | *" build "* | *" tag "* | *" untag "*) ;;
*)
    echo "$me does not know: $*" >&2
    exit 64
    ;;
esac
exit 0
