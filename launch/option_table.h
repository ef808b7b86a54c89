// Every option of the program in one table: parsing, refusals and help all read it.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace ringattn::launch {

enum class Command : unsigned { run = 1, bench = 2, plan = 4, info = 8 };
constexpr unsigned bit(Command c) { return static_cast<unsigned>(c); }

std::string_view name_of(Command command);

struct OptionRow {
  const char* name;   // without the dashes
  unsigned commands;  // bits of the subcommands that it means something to
  const char* value;  // placeholder in the help; "" = a switch without a value
  const char* help;   // what it does, its unit and its default
};

std::span<const OptionRow> option_table();
const OptionRow* find_option(std::string_view name);  // null if there is none

// "--batch --cu-seqlens ...": the options of a subcommand.
std::string allowed_options(Command command);
// "bench, plan": the subcommands that know the option.
std::string commands_of(const OptionRow& row);

std::string help_text();                 // of the program
std::string help_text(Command command);  // of one subcommand

}  // namespace ringattn::launch
