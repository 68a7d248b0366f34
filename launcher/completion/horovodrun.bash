# SPDX-License-Identifier: Apache-2.0
# bash completion for horovodrun; install as /usr/share/bash-completion/completions/horovodrun

_horovodrun()
{
    # BEGIN options: written by tools/gen_settings.c
    local options="
        -h --help -v --version -np --num-proc -cb --check-build --print-config --status --watch
        --dashboard --doctor --config-file --start-timeout --network-interfaces
        --network-interface --output-filename --disable-cache --verbose -H --hosts -hostfile
        --hostfile --host-discovery-script -p --ssh-port -i --ssh-identity-file --gloo --mpi
        --jsrun --fusion-threshold-mb --cycle-time-ms --cache-capacity --hierarchical-allreduce
        --no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather
        --torus-allreduce --no-torus-allreduce --autotune --autotune-cache --autotune-log-file
        --autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples
        --autotune-gaussian-process-noise --timeline-filename --timeline-mark-cycles
        --timeline-all-ranks --no-stall-check --stall-check-warning-time-seconds
        --stall-check-shutdown-time-seconds --summary --log-level --log-without-timestamp
        -prefix-timestamp --prefix-output-with-timestamp --thread-affinity
        --gloo-timeout-seconds --mpi-threads-disable --mpi-args --tcp --binding-args
        --num-nccl-streams --min-np --min-num-proc --max-np --max-num-proc --spares
        --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range"
    local with_value="
        -np --num-proc --dashboard --config-file --start-timeout --network-interfaces
        --network-interface --output-filename -H --hosts -hostfile --hostfile
        --host-discovery-script -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb
        --cycle-time-ms --cache-capacity --autotune-cache --autotune-log-file
        --autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples
        --autotune-gaussian-process-noise --timeline-filename
        --stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --log-level
        --thread-affinity --gloo-timeout-seconds --mpi-args --binding-args --num-nccl-streams
        --min-np --min-num-proc --max-np --max-num-proc --spares --slots-per-host
        --elastic-timeout --reset-limit --blacklist-cooldown-range"
    # END options
    options=${options//$'\n'/ }
    with_value=${with_value//$'\n'/ }
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i
    # Behind the first word that is no option everything belongs to the command.
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -* ]]; then
            [[ " $with_value " == *" ${COMP_WORDS[i]} "* ]] && ((i++))
            continue
        fi
        if declare -F _command_offset >/dev/null; then
            _command_offset "$i"
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi
        return
    done
    case $prev in
        # BEGIN values: written by tools/gen_settings.c
        --timeline-filename | --autotune-cache | --autotune-log-file | --config-file | -hostfile | --hostfile | --host-discovery-script | -i | --ssh-identity-file)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
            ;;
        --output-filename)
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            return
            ;;
        -H | --hosts)
            mapfile -t COMPREPLY < <(compgen -A hostname -S :1 -- "$cur")
            return
            ;;
        --network-interfaces | --network-interface)
            mapfile -t COMPREPLY < <(compgen -W "$(ls /sys/class/net 2>/dev/null)" -- "$cur")
            return
            ;;
        --log-level)
            mapfile -t COMPREPLY < <(compgen -W "TRACE DEBUG INFO WARNING ERROR FATAL" -- "$cur")
            return
            ;;
        # END values
    esac
    [[ " $with_value " == *" $prev "* ]] && return
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
    fi
}
complete -o filenames -F _horovodrun horovodrun
