// The scripts for several machines: what they hand to mpirun and srun, and what they refuse. Stand-ins take
// the place of both, and say what they were given.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/faults/commands.h"
#include "tests/faults/job.h"

namespace ringattn::test {
namespace {

namespace fs = std::filesystem;

class Scripts : public ::testing::Test {
 protected:
  Scripts() {
    stand_in("mpirun", "for word in \"$@\"; do printf '<%s>\\n' \"$word\"; done");
    stand_in("srun",
             "printf '[%s]\\n' \"${SRUN_CPUS_PER_TASK:-none}\"; for word in \"$@\"; do printf '<%s>\\n' "
             "\"$word\"; done; exit 4");
    stand_in("ringattn", "exit 9");
  }
  void stand_in(const std::string& name, const std::string& body) {
    file(name, "#!/bin/sh\n" + body + "\n");
    fs::permissions(path(name), fs::perms::owner_all);
  }
  std::string path(const std::string& name) const { return scratch_.path(name); }
  void file(const std::string& name, const std::string& text) const { scratch_.file(name, text); }
  std::string search_path() const { return scratch_.path("") + ":" + std::getenv("PATH"); }

  JobResult hosts(const Words& arguments, const Environment& more = {}) const {
    Environment environment{{"PATH", search_path()}, {"RINGATTN", path("ringattn")}};
    environment.insert(more.begin(), more.end());
    return run_job(Words{RINGATTN_LAUNCH "/hosts"} + arguments, environment);
  }
  JobResult slurm(const Words& arguments, Environment environment) const {
    environment.insert({{"PATH", search_path()}, {"RINGATTN", path("ringattn")}});
    return run_job(Words{RINGATTN_LAUNCH "/slurm"} + arguments, environment);
  }

 private:
  Scratch scratch_;
};

void expect_refused(const JobResult& job, const std::string& words) {
  EXPECT_EQ(job.exit_code, 2) << job.err;
  EXPECT_NE(job.err.find(words), std::string::npos) << job.err << "\nshould say " << words;
  EXPECT_EQ(job.out, "");
}

TEST_F(Scripts, HostsStartsARankForEachSlotWithTheWordsAsTheyWere) {
  file("hosts", "# the cluster\nnode1 slots=8\n\nnode2 max_slots=9 slots=3\nnode3 slots=2");
  const JobResult job = hosts({"--hostfile", path("hosts"), "--timeout", "77", "--", "run", "--q", "a b.npy",
                               "--k", "$HOME*", "--v", ""});
  ASSERT_EQ(job.exit_code, 0) << job.err;
  EXPECT_TRUE(job.out.starts_with("<--hostfile>\n<" + path("hosts") +
                                  ">\n<-np>\n<13>\n<--timeout>\n<77>\n<--bind-to>\n<none>\n"))
      << job.out;
  EXPECT_TRUE(
      job.out.ends_with("<" + path("ringattn") + ">\n<run>\n<--q>\n<a b.npy>\n<--k>\n<$HOME*>\n<--v>\n<>\n"))
      << job.out;
}

TEST_F(Scripts, HostsHandsOnTheVariablesThatMatterAndNoOthers) {
  file("hosts", "node1 slots=1\n");
  const JobResult job = hosts(
      {"--hostfile", path("hosts"), "bench"},
      {{"OMP_NUM_THREADS", "3"}, {"NCCL_DEBUG", "INFO"}, {"RINGATTN_TEST_FAULT", ""}, {"UNRELATED", "x"}});
  ASSERT_EQ(job.exit_code, 0) << job.err;
  for (const char* name : {"OMP_NUM_THREADS", "NCCL_DEBUG", "RINGATTN_TEST_FAULT"})
    EXPECT_NE(job.out.find("<-x>\n<" + std::string(name) + ">\n"), std::string::npos) << job.out;
  EXPECT_EQ(job.out.find("UNRELATED"), std::string::npos) << job.out;
}

// Open MPI would take such a line for one rank.
TEST_F(Scripts, HostsRefusesAMachineWithoutSlotsByItsName) {
  file("hosts", "node1 slots=8\nnode2\n");
  expect_refused(hosts({"--hostfile", path("hosts"), "bench"}), "'node2' has no slots=N");
  file("hosts", "node1 slots=0\n");
  expect_refused(hosts({"--hostfile", path("hosts"), "bench"}), "'node1' has no slots=N");
  file("hosts", "node1 slots=8x\n");
  expect_refused(hosts({"--hostfile", path("hosts"), "bench"}), "'node1' has no slots=N");
  file("hosts", "# nobody\n\n");
  expect_refused(hosts({"--hostfile", path("hosts"), "bench"}), "names no machine");
}

TEST_F(Scripts, HostsRefusesWhatItCannotUse) {
  file("hosts", "node1 slots=8\n");
  expect_refused(hosts({"bench"}), "launch/hosts --hostfile FILE");
  expect_refused(hosts({"--hostfile", path("hosts")}), "launch/hosts --hostfile FILE");
  expect_refused(hosts({"--hostfile", path("missing"), "bench"}), "cannot be read");
  expect_refused(hosts({"--hostfile", path("hosts"), "--timeout", "0", "bench"}), "--timeout is '0'");
  fs::remove(path("ringattn"));
  expect_refused(hosts({"--hostfile", path("hosts"), "bench"}), "is not built");
}

TEST_F(Scripts, SlurmStartsATaskForEachGpuAndPassesOnItsEnd) {
  const JobResult job = slurm({"run", "--q", "a b.npy", "--k", "$HOME*"}, {{"SLURM_JOB_ID", "17"},
                                                                           {"SLURM_GPUS_ON_NODE", "8"},
                                                                           {"SLURM_NTASKS_PER_NODE", "8"},
                                                                           {"SLURM_CPUS_PER_TASK", "12"}});
  EXPECT_EQ(job.exit_code, 4) << job.err;  // srun's
  EXPECT_EQ(job.out, "[12]\n<--kill-on-bad-exit=1>\n<--wait=60>\n<" + path("ringattn") +
                         ">\n<run>\n<--q>\n<a b.npy>\n<--k>\n<$HOME*>\n");
}

TEST_F(Scripts, SlurmRefusesTasksThatAreNotOneForEachGpu) {
  Environment job{{"SLURM_JOB_ID", "17"}, {"SLURM_GPUS_ON_NODE", "8"}};
  expect_refused(slurm({"bench"}, job), "8 GPUs and --ntasks-per-node is 'not given', allowed is 8");
  job["SLURM_NTASKS_PER_NODE"] = "4";
  expect_refused(slurm({"bench"}, job), "8 GPUs and --ntasks-per-node is '4', allowed is 8");
  job.erase("SLURM_GPUS_ON_NODE");  // CPUs: as many tasks as one likes
  EXPECT_EQ(slurm({"bench"}, job).exit_code, 4);
}

TEST_F(Scripts, SlurmRefusesWhatItCannotStart) {
  expect_refused(slurm({"bench"}, {}), "submit this script with sbatch");
  const Environment job{{"SLURM_JOB_ID", "17"}};
  expect_refused(slurm({}, job), "no subcommand");
  expect_refused(slurm({"train"}, job), "subcommand is 'train'");
  expect_refused(
      slurm({"bench"}, {{"SLURM_JOB_ID", "17"}, {"RINGATTN", ""}, {"SLURM_SUBMIT_DIR", "/nowhere"}}),
      "/nowhere/build/launch/ringattn is not there");
}

}  // namespace
}  // namespace ringattn::test
